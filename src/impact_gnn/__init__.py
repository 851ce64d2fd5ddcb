"""Graph learning that stays right when the future is not like the past."""
