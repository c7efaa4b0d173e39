"""Built-in Kubernetes kinds that Moxwell reads or writes; Structs hold only the fields it uses."""
