"""A drill: whom it reaches, what is known of it, and whether it has passed."""
