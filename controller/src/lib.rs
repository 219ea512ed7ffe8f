//! P4Runtime controller: one YAML file to a running fabric
