"""Results that a run which was cut off goes on with: one place, one fingerprint, whole files only."""
