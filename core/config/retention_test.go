package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The keys as they stand in a broker.conf of RocketMQ.
func TestRetentionKeys(t *testing.T) {
	l, err := loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\ndeleteWhen = 02;14 ; 23\nfileReservedTime=48\ndiskMaxUsedSpaceRatio=88\ndeleteCommitLogFilesInterval=100\ndestroyMapedFileIntervalForcibly=120000\n")
	require.NoError(t, err)
	require.Empty(t, l.Warnings)
	r := l.Config.Retention
	require.Equal(t, 48*time.Hour, r.FileReservedTime)
	require.Equal(t, 88, r.MaxUsedRatio)
	require.Equal(t, 2*time.Minute, r.ReaderWait)
	hours, err := r.Hours()
	require.NoError(t, err)
	require.Equal(t, uint32(1<<2|1<<14|1<<23), hours)

	for _, text := range []string{"deleteWhen=24", "deleteWhen=4h", "deleteWhen=-1", "deleteWhen=04;", "deleteWhen=004"} {
		_, err := loadText(t, Broker, "broker.conf", text+"\n")
		e := fault(t, err)
		require.ErrorIs(t, e, ErrBadValue, text)
		require.Equal(t, "deleteWhen", e.Key)
		require.ErrorContains(t, e, "04 or 02;14")
	}
	l, err = loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\ndiskSpaceWarningLevelRatio=80\n")
	require.NoError(t, err, "RocketMQ takes it")
	require.True(t, warned(l, "diskSpaceCleanForciblyRatio"))
	_, changes, err := l.Update([]byte("fileReservedTime=24\ncleanFileForciblyEnable=false\n"))
	require.NoError(t, err)
	require.Len(t, changes, 2)
	_, _, err = l.Update([]byte("deleteWhen=77\n"))
	require.ErrorIs(t, fault(t, err), ErrBadValue)
}
