package client_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list is the answer of request 38, nil when there is nobody.
func list(t *testing.T, c *enginetest.Client, group string) []string {
	t.Helper()
	r := c.Do(command.ReqGetConsumerListByGroup, (&command.ConsumerGroupRequest{ConsumerGroup: []byte(group)}).Append, nil)
	if r.Code == command.RespSystemError {
		require.Contains(t, r.Remark, "no consumer for this group, "+group)
		return nil
	}
	require.Zero(t, r.Code, r.Remark)
	var out command.ConsumerList
	require.NoError(t, command.DecodeBody(r.Body, &out))
	return out.ConsumerIDs
}

// notified counts the pushes 40 for a group.
func notified(t *testing.T, c *enginetest.Client, group string) int {
	t.Helper()
	n := 0
	for _, p := range c.Pushes() {
		require.Equal(t, command.ReqNotifyConsumerIDsChanged, p.Code)
		require.NotZero(t, p.Flag&command.FlagOneway)
		if p.Ext["consumerGroup"] == group {
			n++
		}
	}
	return n
}

func beat(t *testing.T, c *enginetest.Client, hb command.HeartbeatData) *enginetest.Reply {
	t.Helper()
	r := c.Do(command.ReqHeartBeat, nil, c.Body(hb))
	require.Zero(t, r.Code, r.Remark)
	return r
}

func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		a, b, third := e.Connect(t), e.Connect(t), e.Connect(t)
		require.Nil(t, list(t, a, "G"))
		r := beat(t, b, enginetest.Heartbeat("client-b", "G", 1, "T"))
		require.Equal(t, "true", r.Ext["IS_SUPPORT_HEART_BEAT_V2"])
		require.Equal(t, []string{"client-b"}, list(t, b, "G"), "as soon as its heartbeat is answered")
		require.NotNil(t, e.K.Topics.Named("%RETRY%G"))
		require.NotNil(t, e.K.Groups.Named("G"))
		notified(t, b, "G")
		beat(t, a, enginetest.Heartbeat("client-a", "G", 1, "T"))
		require.Equal(t, []string{"client-a", "client-b"}, list(t, a, "G"), "sorted")
		require.Equal(t, 1, notified(t, b, "G"))
		notified(t, a, "G")
		beat(t, a, enginetest.Heartbeat("client-a", "G", 1, "T"))
		require.Zero(t, notified(t, a, "G")+notified(t, b, "G"), "nothing changed")
		beat(t, a, enginetest.Heartbeat("client-a", "G", 2, "T", "T2"))
		require.Equal(t, 1, notified(t, b, "G"), "a topic more")

		beat(t, third, enginetest.Heartbeat("client-c", "G", 2, "T", "T2"))
		require.Equal(t, 1, notified(t, b, "G"))
		unregister := func(c *enginetest.Client, id string) {
			require.Zero(t, c.Do(command.ReqUnregisterClient, (&command.UnregisterClientRequest{ClientID: []byte(id), ConsumerGroup: []byte("G")}).Append, nil).Code)
		}
		unregister(third, "client-c")
		require.Equal(t, 1, notified(t, b, "G"))
		unregister(third, "client-c")
		require.Zero(t, notified(t, b, "G"), "it was gone")
		a.Close(io.EOF) // Go clients never unregister
		require.Equal(t, 1, notified(t, b, "G"))
		require.Equal(t, []string{"client-b"}, list(t, b, "G"))

		// A client that comes back by another connection is the same member, and
		// the end of the old connection is not its end.
		b2 := e.Connect(t)
		beat(t, b2, enginetest.Heartbeat("client-b", "G", 2, "T", "T2"))
		b.Close(io.EOF)
		require.Equal(t, []string{"client-b"}, list(t, b2, "G"))
		b2.Close(io.EOF)
		require.Nil(t, list(t, third, "G"))
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		a, b := e.Connect(t), e.Connect(t)
		beat(t, a, enginetest.Heartbeat("client-a", "G", 1, "T"))
		hb := enginetest.Heartbeat("client-b", "G", 1, "T")
		hb.ProducerDataSet = []command.ProducerData{{GroupName: "PG"}}
		beat(t, b, hb)
		for range 5 {
			<-time.After(30 * time.Second)
			beat(t, a, enginetest.Heartbeat("client-a", "G", 1, "T"))
		}
		synctest.Wait()
		require.Equal(t, []string{"client-a"}, list(t, a, "G"))
		require.Positive(t, notified(t, a, "G"))
		select {
		case <-b.Peer.Done():
		default:
			t.Error("the silent client's connection is open")
		}
		require.Empty(t, e.Clients.Producers("PG"))
	})
}

func TestNotifications(t *testing.T) {
	t.Run("broadcasting", func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		a, b := e.Connect(t), e.Connect(t)
		for i, c := range []*enginetest.Client{a, b} {
			hb := enginetest.Heartbeat(fmt.Sprint("c", i), "G", 1, "T")
			hb.ConsumerDataSet[0].MessageModel = command.Broadcasting
			beat(t, c, hb)
		}
		require.Zero(t, notified(t, a, "G"))
		require.Equal(t, []string{"c0", "c1"}, list(t, a, "G"))
		require.Nil(t, e.K.Topics.Named("%RETRY%G"), "a broadcast is not retried")
	})
	t.Run("switched off", func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.NotifyIDs = false }})
		a, b := e.Connect(t), e.Connect(t)
		beat(t, a, enginetest.Heartbeat("a", "G", 1, "T"))
		beat(t, b, enginetest.Heartbeat("b", "G", 1, "T"))
		require.Zero(t, notified(t, a, "G"))
	})
	t.Run("for a group", func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		g := command.DefaultSubscriptionGroup("G")
		g.NotifyConsumerIDsChangedEnable = false
		require.NoError(t, e.K.Groups.Put(t.Context(), g))
		a, b := e.Connect(t), e.Connect(t)
		beat(t, a, enginetest.Heartbeat("a", "G", 1, "T"))
		beat(t, b, enginetest.Heartbeat("b", "G", 1, "T"))
		require.Zero(t, notified(t, a, "G"))
	})
}

// Subscriptions: the highest version counts, topics left out are gone, V2
// heartbeats may leave all out.
// Thousands of clients behind one connection do not get thousands of pushes for
// each that comes.
func TestAConnectionIsToldOnce(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for i := range 20 {
		beat(t, c, enginetest.Heartbeat(fmt.Sprint("c", i), "G", 1, "T"))
		require.Equal(t, 1, notified(t, c, "G"), "client %d", i)
	}
}

func TestSubscriptions(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	sub := func(topic string) (string, int64) {
		s, _, known := e.Clients.Subscribed("G", topic)
		require.True(t, known)
		if s == nil {
			return "", 0
		}
		return s.Data.SubString, int64(s.Data.SubVersion)
	}
	hb := func(version int64, expr string, topics ...string) command.HeartbeatData {
		h := enginetest.Heartbeat("c", "G", version, topics...)
		for i := range h.ConsumerDataSet[0].SubscriptionDataSet {
			h.ConsumerDataSet[0].SubscriptionDataSet[i].SubString = expr
		}
		return h
	}
	beat(t, c, hb(5, "a", "T", "T2"))
	beat(t, c, hb(4, "old", "T", "T2"))
	expr, v := sub("T")
	require.Equal(t, "a", expr)
	require.Equal(t, int64(5), v)
	beat(t, c, hb(6, "new", "T"))
	expr, _ = sub("T")
	require.Equal(t, "new", expr)
	expr, _ = sub("T2")
	require.Empty(t, expr)
	h := hb(0, "")
	h.WithoutSub = true
	beat(t, c, h)
	expr, _ = sub("T")
	require.Equal(t, "new", expr)
	beat(t, c, hb(7, "||", "T"))
	s, _, _ := e.Clients.Subscribed("G", "T")
	require.Nil(t, s.Tags, "an expression that cannot be used is kept for the error of the pull")
}

func TestBadHeartbeats(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Config: func(c *kernel.Config) { c.AutoCreateGroup = false }})
	c := e.Connect(t)
	for _, body := range []string{"", "{", `{"clientID":""}`, "null"} {
		require.NotZero(t, c.Do(command.ReqHeartBeat, nil, []byte(body)).Code, body)
	}
	hb := enginetest.Heartbeat("c", "unknown", 1, "T")
	hb.ConsumerDataSet = append(hb.ConsumerDataSet, enginetest.Heartbeat("c", "a b", 1, "T").ConsumerDataSet...)
	beat(t, c, hb) // skipped in silence, as the reference does
	require.Nil(t, list(t, c, "unknown"))
	require.NotZero(t, c.Do(command.ReqUnregisterClient, nil, nil).Code)
	require.NotZero(t, c.Do(command.ReqGetConsumerListByGroup, nil, nil).Code)
}

// One heartbeat on a log that hangs costs one wait and orders one record, however
// many groups it names: the rest was answered as not created.
func TestHeartbeatWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		beat(t, c, enginetest.Heartbeat("c", "known", 1, "T"))
		hb := enginetest.Heartbeat("c", "G0", 1, "T")
		for i := range 50 {
			hb.ConsumerDataSet = append(hb.ConsumerDataSet, enginetest.Heartbeat("c", fmt.Sprint("G", i+1), 1, "T").ConsumerDataSet...)
		}
		hb.ConsumerDataSet = append(hb.ConsumerDataSet, enginetest.Heartbeat("c", "known", 1, "T").ConsumerDataSet...)
		e.Script.Hold()
		began := time.Now()
		beat(t, c, hb)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, []string{"c"}, list(t, c, "known"), "what is there needs no log")
		require.NoError(t, e.Script.Release(t.Context()))
		synctest.Wait()
		for i := 1; i <= 50; i++ {
			require.Nil(t, e.K.Groups.Named(fmt.Sprint("G", i)), "what was not waited for was not ordered")
		}
		beat(t, c, hb)
		require.Equal(t, []string{"c"}, list(t, c, "G50"), "the next heartbeat creates it")
	})
}

// A connection cannot fill the memory with groups, and what is refused for that
// leaves nothing behind.
func TestMembershipsAreBounded(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	hb := command.HeartbeatData{ClientID: "c"}
	for i := range 1<<16 - 1 {
		hb.ProducerDataSet = append(hb.ProducerDataSet, command.ProducerData{GroupName: fmt.Sprint("P", i)})
	}
	beat(t, c, hb)
	beat(t, c, hb) // the same again
	two := command.HeartbeatData{ClientID: "c", ProducerDataSet: []command.ProducerData{{GroupName: "Q1"}, {GroupName: "Q2"}}}
	r := c.Do(command.ReqHeartBeat, nil, c.Body(two))
	require.Equal(t, command.RespInvalidParameter, r.Code)
	require.Contains(t, r.Remark, "65536")
	require.Empty(t, e.Clients.Producers("Q1"))
	two.ProducerDataSet = two.ProducerDataSet[:1]
	beat(t, c, two)
	other := e.Connect(t)
	hb.ClientID = "d"
	beat(t, other, hb)
	require.Len(t, e.Clients.Producers("P0"), 2)

	hb.ClientID, hb.ProducerDataSet = "c", hb.ProducerDataSet[:1]
	beat(t, other, hb) // a client that came back over another connection leaves room on the first
	beat(t, c, command.HeartbeatData{ClientID: "c", ProducerDataSet: []command.ProducerData{{GroupName: "Q2"}}})
	c.Close(io.EOF)
	require.Len(t, e.Clients.Producers("P0"), 2, "it is the other connection's by now")
	require.Empty(t, e.Clients.Producers("P1000")[1:])
}

func TestCheckConfig(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	for _, x := range []struct {
		kind, expr string
		code       int32
	}{{"TAG", "a||b", 0}, {"", "*", 0}, {"SQL92", "a > 1", 1}, {"TAG", "||", 23}} {
		b := command.CheckClientConfigBody{ClientID: "c", Group: "G", SubscriptionData: command.SubscriptionData{Topic: "T", ExpressionType: x.kind, SubString: x.expr}}
		require.Equal(t, x.code, c.Do(command.ReqCheckClientConfig, nil, c.Body(b)).Code, x)
	}
	require.NotZero(t, c.Do(command.ReqCheckClientConfig, nil, []byte("[")).Code)
}

func TestGroupRemoved(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	beat(t, c, enginetest.Heartbeat("c", "G", 1, "T"))
	require.NoError(t, e.K.Groups.Remove(t.Context(), "G", true))
	require.Nil(t, list(t, c, "G"))
}
