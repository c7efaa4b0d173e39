"""One suite of API cases, run on the embedded API and on a genuine apiserver, and compared."""
