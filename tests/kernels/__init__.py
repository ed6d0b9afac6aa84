"""The payload's tests."""
