"""MBPP, its sanitised part, and MBPP+ (EvalPlus): short functions described in one sentence."""
