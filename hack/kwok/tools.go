//go:build tools

// Package kwok pins kwok, which plays nodes: `go build sigs.k8s.io/kwok/cmd/kwok` in this module makes the real one.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
