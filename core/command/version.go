package command

import (
	"fmt"
	"strings"
)

// VersionDesc is the name of an MQVersion ordinal, as in V5_3_3 or V4_9_5_SNAPSHOT: what
// tools and metrics show of clients. What is beyond the table is HIGHER_VERSION.
func VersionDesc(n int32) string {
	switch {
	case n < 0 || n >= 612:
		return "HIGHER_VERSION"
	case n < int32(len(firstVersions)):
		return firstVersions[n]
	}
	name := versionAt((n - int32(len(firstVersions))) / 2)
	if (n-int32(len(firstVersions)))%2 == 0 {
		name += "_SNAPSHOT"
	}
	return name
}

// firstVersions are those before the rule "a snapshot, then the version".
var firstVersions = strings.Fields("V3_0_0_SNAPSHOT V3_0_0_ALPHA1 V3_0_0_BETA1 V3_0_0_BETA2 V3_0_0_BETA3 V3_0_0_BETA4 V3_0_0_BETA5 " +
	"V3_0_0_BETA6_SNAPSHOT V3_0_0_BETA6 V3_0_0_BETA7_SNAPSHOT V3_0_0_BETA7 V3_0_0_BETA8_SNAPSHOT V3_0_0_BETA8 " +
	"V3_0_0_BETA9_SNAPSHOT V3_0_0_BETA9 V3_0_0_FINAL")

// versionAt is the release number i behind V3_0_0_FINAL: 3.0 goes to 3.0.15, 3.3 to 3.9
// have no release 0, all others have ten.
func versionAt(i int32) string {
	if i < 15 {
		return fmt.Sprintf("V3_0_%d", i+1)
	}
	i -= 15
	if i < 20 {
		return fmt.Sprintf("V3_%d_%d", 1+i/10, i%10)
	}
	i -= 20
	if i < 63 {
		return fmt.Sprintf("V3_%d_%d", 3+i/9, 1+i%9)
	}
	i -= 63
	return fmt.Sprintf("V%d_%d_%d", 4+i/100, i/10%10, i%10)
}
