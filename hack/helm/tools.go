//go:build tools

// Package helm pins helm, which installs the chart: `go build helm.sh/helm/v3/cmd/helm` in this module makes the real one.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
