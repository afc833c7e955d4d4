"""Sealed segments of records, in a folder or an object store, where the audit finds them."""
