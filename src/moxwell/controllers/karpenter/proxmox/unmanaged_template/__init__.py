"""The controller of ProxmoxUnmanagedTemplates: finds the templates that they select."""
