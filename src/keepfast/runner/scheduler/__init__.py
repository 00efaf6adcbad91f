"""What runs when: the supervisor, its attempts, timers and workflows."""
