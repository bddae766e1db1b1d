"""ASQA as ALCE runs it: long answers to ambiguous questions, every sentence citing retrieved passages."""
