"""Test helpers that need development dependencies, so they are no part of the installed package."""
