"""What a start does before messages are served: find the end, rebuild what is derived."""
