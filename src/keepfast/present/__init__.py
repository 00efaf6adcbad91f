"""What front ends share: environment, terminal, JSON forms, patches."""
