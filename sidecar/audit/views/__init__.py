"""The queries of the views, by what they are about, and of what they are made of (`fold.sql`: what the daily job computes, too)."""
