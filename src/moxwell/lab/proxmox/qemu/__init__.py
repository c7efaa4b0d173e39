"""Virtual machines: configuration, disks, power, snapshots, clones, migration."""
