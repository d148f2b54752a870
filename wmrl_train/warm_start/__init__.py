"""The warm start of the small code-writing policy: a grammar of short programs, a tokenizer, a 2 M parameter model, and its
training.
"""
