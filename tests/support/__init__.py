"""Helpers of the tests, without tests of their own."""
