"""The user simulator: writes what the user says next, from the user's brief alone."""
