"""
The dashboard: what is, what is being done, what is awaited and why, drawn.

``views`` are pure functions from what the caches hold to *records*, flat values under keys such as
``host/amsterdam/pve1``. ``ring`` keeps the records, numbers every change and remembers a bounded
past. ``http`` serves the page, the records and their changes as server-sent events; it never reads
anything but the ring. Nothing here asks Kubernetes or Proxmox for anything: ``app`` hands in what
the controllers have already seen, so the dashboard costs the estate nothing.
"""
