"""Connections to other services: endpoints and secrets, TLS, HTTP with bounds, object stores."""
