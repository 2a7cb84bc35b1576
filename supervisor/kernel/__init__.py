"""Pure decisions and plain frozen dataclasses: standard library only; no input or output, no clock, no randomness."""
