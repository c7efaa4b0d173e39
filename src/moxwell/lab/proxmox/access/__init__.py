"""Authentication and access control: ``/access`` of the API."""
