"""
Who owns which field: sets of field paths, server-side apply, and the managedFields of objects.
"""
