"""Models as GGUF, the format of llama.cpp. Needs the extra ``train``."""
