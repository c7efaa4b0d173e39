"""The facts of the PVE API schema: methods, parameters, formats and permissions."""
