"""What a plan will take: an event simulation of one step, and each device's peak memory.

It reads a plan, not a schedule, so that it checks what a scheduler promised independently of it.
"""
