"""The door to the models: one loopback process through which all model traffic of the crew goes."""
