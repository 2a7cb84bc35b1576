"""Tests of inference engines behind the gateway."""
