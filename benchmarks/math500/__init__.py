"""MATH-500: competition problems with short answers, compared by math-verify."""
