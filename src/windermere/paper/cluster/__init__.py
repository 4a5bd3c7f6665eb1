"""Trainings in other processes and on other machines: what is handed out, who keeps count of it, and Ray."""
