"""The trusted process in an agent's pane. `main` is the door and says what happens; it is started by its path."""
