"""HumanEval+ and its Mini set: HumanEval's problems with many more hidden inputs (EvalPlus), read by path."""
