"""Former names of modules that manifests name. Use deployments.proxy."""
