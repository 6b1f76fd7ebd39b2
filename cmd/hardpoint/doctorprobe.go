package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

const (
	// probePrefix starts the names of the topics that doctors make.
	probePrefix = "HARDPOINT_DOCTOR_"
	probeTag    = "hardpoint-doctor"
	// routePatience is how long a topic may take to come into the routes.
	routePatience = 5 * time.Second
	routePause    = 100 * time.Millisecond
	// clockTolerance is what clocks may differ.
	clockTolerance  = 2 * time.Second
	cleanupPatience = 20 * time.Second
)

// probe sends a message to each broker that takes some, and reads it back. With a topic
// these are its brokers, else those that are fit.
func (d *doctor) probe(ctx context.Context, fit []*patient, route []adminclient.Broker) {
	var masters []adminclient.Broker
	for _, p := range fit {
		if p.b.ID == 0 && (p.config == nil || stateOf(orNumber(p.config["brokerPermission"], 6)) == stateUp) {
			masters = append(masters, p.b)
		}
	}
	if d.topic != "" {
		for _, b := range route {
			if slices.ContainsFunc(masters, func(m adminclient.Broker) bool { return m.Address == b.Address }) && d.exchange(ctx, b, d.topic) {
				d.d.Left = append(d.d.Left, fmt.Sprintf("a message with the tag %s in topic %s on broker %s", probeTag, d.topic, b.Name))
			}
		}
		return
	}
	topic := probePrefix + random(8)
	var made []adminclient.Broker
	// What was begun is cleaned up, also when somebody interrupts.
	defer func() { d.clean(context.WithoutCancel(ctx), topic, made) }()
	for _, b := range masters {
		made = append(made, b)
		_, err := d.c.Ask(ctx, b.Address, command.ReqUpdateAndCreateTopic, &command.CreateTopicRequest{
			Topic: topic, DefaultTopic: message.AutoCreateTopic, TopicFilterType: "SINGLE_TAG", ReadQueueNums: 1, WriteQueueNums: 1, Perm: command.PermRead | command.PermWrite,
		}, nil)
		if err != nil {
			d.failed("send", b.Name, "a broker that makes no topic has no master, or cannot write: its log says why", fmt.Errorf("making a topic for the message: %w", err))
			made = made[:len(made)-1]
		}
	}
	if len(made) > 0 {
		d.registered(ctx, topic, made)
	}
	for _, b := range made {
		if d.exchange(ctx, b, topic) {
			d.d.Left = append(d.d.Left, fmt.Sprintf("a record of some 300 bytes in the log of broker %s, until it expires", b.Name))
		}
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return strings.ToUpper(hex.EncodeToString(b))
}

// registered waits until the new topic is in the route, as clients do.
func (d *doctor) registered(ctx context.Context, topic string, made []adminclient.Broker) {
	began := time.Now()
	missing := func() (out []string) {
		r, err := adminclient.GetFromNameServer[command.TopicRouteData](ctx, d.c, command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}, nil)
		for _, b := range made {
			if err != nil || !slices.ContainsFunc(r.BrokerDatas, func(x command.BrokerData) bool { return x.BrokerName == b.Name }) {
				out = append(out, b.Name)
			}
		}
		return out
	}
	for {
		left := missing()
		if len(left) == 0 {
			d.say(verdictOK, "register", topic, "", "a new topic is in the route after %s", shortText(time.Since(began)))
			return
		}
		if time.Since(began) > routePatience || ctx.Err() != nil {
			d.say(verdictWarning, "register", topic, "see in the logs of the brokers whether they reach all name servers", "a new topic is not in the route of %s after %s", strings.Join(left, ", "), durationText(routePatience))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(routePause):
		}
	}
}

// exchange sends a message to queue 0 of a topic on a broker and reads it back; true:
// a message is there now.
func (d *doctor) exchange(ctx context.Context, b adminclient.Broker, topic string) bool {
	body := []byte(probeTag + " " + random(16))
	props := message.AppendProperty(nil, message.PropTags, probeTag)
	props = message.AppendProperty(props, message.PropUniqueKey, random(16))
	props = message.AppendProperty(props, message.PropWait, "true")
	began := time.Now()
	code, sent, err := d.c.Send(ctx, b, &command.SendRequest{
		ProducerGroup: []byte("HARDPOINT_DOCTOR"), Topic: []byte(topic), DefaultTopic: []byte(message.AutoCreateTopic), DefaultTopicQueueNums: 1,
		BornTimestamp: began.UnixMilli(), Properties: props, MaxReconsumeTimes: -1,
	}, body)
	took := time.Since(began)
	switch {
	case err != nil && unheard(err):
		d.failed("send", b.Name, "the broker was reached before: it hangs, or the message was too slow for --timeout", err)
		return false
	case err != nil:
		d.failed("send", b.Name, "", err)
		return false
	case code != command.RespSuccess:
		d.say(verdictWarning, "send", b.Name, "the message is stored, but its promise is not kept: look at the disk and the replicas of the broker (hardpoint broker status)", "%s in %s", command.ResponseName(code), shortText(took))
	default:
		d.say(verdictOK, "send", b.Name, "", "stored in %s", shortText(took))
	}
	readBegan := time.Now()
	ms, _, err := d.c.Read(ctx, b, message.Queue{Topic: topic, ID: sent.QueueID}, sent.QueueOffset, 1)
	switch {
	case err != nil:
		d.failed("consume", b.Name, "", err)
		return true
	case len(ms) == 0 || !bytes.Equal(ms[0].Body, body):
		d.say(verdictFailure, "consume", b.Name, "look into the broker's log: what is acknowledged has to be readable", "the message that it stored at offset %d is not there", sent.QueueOffset)
		return true
	}
	d.say(verdictOK, "consume", b.Name, "", "read back in %s", shortText(time.Since(readBegan)))
	d.clock(b, began, took, ms[0].StoreTime)
	return true
}

// clock compares the store time of a message with the time here at which it was stored.
func (d *doctor) clock(b adminclient.Broker, began time.Time, took time.Duration, stored int64) {
	off := time.UnixMilli(stored).Sub(began.Add(took / 2))
	text := "like the clock here, give or take " + shortText(max(took/2, time.Millisecond))
	switch ahead := off.Abs() - took/2; {
	case ahead <= clockTolerance:
		d.say(verdictOK, "clock", b.Name, "", "%s", text)
	case off > 0:
		d.say(verdictWarning, "clock", b.Name, "have the machines set their clocks (NTP): times of messages, delays and resets are wrong by that", "%s ahead of the clock here", durationText(off))
	default:
		d.say(verdictWarning, "clock", b.Name, "have the machines set their clocks (NTP): times of messages, delays and resets are wrong by that", "%s behind the clock here", durationText(-off))
	}
}

// clean deletes the topic wherever it may be.
func (d *doctor) clean(ctx context.Context, topic string, made []adminclient.Broker) {
	if len(made) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupPatience)
	defer cancel()
	h := &command.TopicRequest{Topic: topic}
	err := adminclient.Failed(adminclient.Each(ctx, made, func(ctx context.Context, b adminclient.Broker) (struct{}, error) {
		_, err := d.c.Ask(ctx, b.Address, command.ReqDeleteTopicInBroker, h, nil)
		// Apache's brokers without a timer wheel fail when they have deleted it.
		if _, refused := adminclient.CodeOf(err); refused {
			if left, lerr := topicConfig(ctx, d.c, b, topic); lerr == nil && left == nil {
				err = nil
			}
		}
		return struct{}{}, err
	}))
	if err != nil {
		d.say(verdictWarning, "cleanup", topic, proposal("topic delete", []string{topic}), "the topic is still there: %s", err)
		d.d.Left = append(d.d.Left, "topic "+topic)
		return
	}
	for _, server := range d.c.NameServers() {
		// One that is away was told so above; it knows the topic from brokers alone.
		_, err := d.c.Ask(ctx, server, command.ReqDeleteTopicInNamesrv, h, nil)
		if _, refused := adminclient.CodeOf(err); refused {
			d.say(verdictWarning, "cleanup", topic, proposal("topic delete", []string{topic}), "%s", err)
		}
	}
}
