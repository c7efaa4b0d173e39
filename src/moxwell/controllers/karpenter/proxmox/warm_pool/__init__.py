"""The controller that keeps the warm guests of node classes."""
