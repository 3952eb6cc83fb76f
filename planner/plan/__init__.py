"""The plan: its schema, files, checks and differences. The only thing that planner and launcher share."""
