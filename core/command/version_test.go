package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

func TestVersionDesc(t *testing.T) {
	require.Equal(t, command.VersionName, command.VersionDesc(command.Version))
	for n, want := range map[int32]string{ // MQVersion of RocketMQ 5.3.3
		0: "V3_0_0_SNAPSHOT", 14: "V3_0_0_BETA9", 15: "V3_0_0_FINAL", 16: "V3_0_1_SNAPSHOT", command.Version3011: "V3_0_11", 45: "V3_0_15", 47: "V3_1_0",
		85: "V3_2_9", 87: "V3_3_1", command.Version349: "V3_4_9", 211: "V3_9_9", 213: "V4_0_0", command.Version493: "V4_9_3", command.Version494: "V4_9_4",
		402: "V4_9_5_SNAPSHOT", command.Version500: "V5_0_0", command.Version531: "V5_3_1", 611: "V5_9_9", 612: "HIGHER_VERSION", 10_000: "HIGHER_VERSION", -1: "HIGHER_VERSION",
	} {
		require.Equal(t, want, command.VersionDesc(n), n)
	}
}
