"""The plan: its schema, files, checks and differences. The only thing that planner and launcher share.

Called, ``planner.plan(model, *, cpus=..., ...)`` plans a model: see ``planner.api.plan``.
"""
