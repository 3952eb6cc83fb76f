"""What users look at: tables, Gantt charts, traces. Plans and timelines in, text out; nothing is decided here."""
