package soak

import (
	"testing"

	"github.com/hardpointmq/hardpoint/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
