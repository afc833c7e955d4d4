"""How others are reached: endpoints and secrets, TLS, HTTP with bounds, object stores."""
