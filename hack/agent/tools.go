//go:build tools

// Package agent pins the buildkite-agent: `go build github.com/buildkite/agent/v3` in this module makes the real one.
package agent

import _ "github.com/buildkite/agent/v3"
