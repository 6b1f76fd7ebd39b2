package main

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardpointmq/hardpoint/core/api"
)

// messageCmds are commands of scripts about messages.
var messageCmds = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// store BROKER TOPIC QUEUE BODY [PROPERTY=VALUE...]: the body may have escapes; what
	// is known of the message is in the environment: ID, and OFFSET
	"store": func(ts *testscript.TestScript, _ bool, args []string) {
		var body string
		_, err := fmt.Sscanf(`"`+args[3]+`"`, "%q", &body)
		ts.Check(err)
		props := map[string]string{}
		for _, p := range args[4:] {
			k, v, _ := strings.Cut(p, "=")
			props[k] = v
		}
		r, err := sceneOf(ts).brokers[args[0]].API().Send(context.Background(), &api.SendRequest{
			Topic: args[1], Queue: int32(number(ts, args[2])), Body: []byte(body), Properties: maps.Clone(props),
		})
		ts.Check(err)
		ts.Setenv("ID", r.OffsetID)
		ts.Setenv("OFFSET", fmt.Sprint(r.Offset))
	},
}
