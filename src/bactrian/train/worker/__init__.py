"""The processes that train: the only code that needs PyTorch.

Nothing else imports it; see ``train/training.py``.
"""
