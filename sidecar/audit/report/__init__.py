"""`audit report`: one HTML file about a quarter."""
