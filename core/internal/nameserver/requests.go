package nameserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hardpointmq/hardpoint/core/command"
)

// noRouteHint ends the remark of an answer without a route, as in RocketMQ.
const noRouteHint = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

// Bits of a topic's system flag (RocketMQ's TopicSysFlag).
const (
	flagUnit    int32 = 1
	flagUnitSub int32 = 2
)

// handle answers one request into r.
func (s *session) handle(h *command.Header, body []byte, r *reply) {
	var err error
	switch h.Code {
	case command.ReqGetRouteInfoByTopic:
		s.route(h, r)
	case command.ReqRegisterBroker:
		err = s.register(h, body, r)
	case command.ReqUnregisterBroker:
		var req command.UnregisterBrokerRequest
		if err = req.Decode(h); err == nil {
			s.server.table.unregister(req.BrokerID)
		}
	case command.ReqQueryDataVersion:
		err = s.dataVersion(h, body, r)
	case command.ReqBrokerHeartbeat:
		var req command.BrokerHeartbeatRequest
		if err = req.Decode(h); err == nil {
			s.touch(req.BrokerID)
		}
	case command.ReqGetBrokerClusterInfo:
		r.body, err = command.EncodeBody(s.server.table.cluster())
	case command.ReqGetBrokerMemberGroup:
		var req command.MemberGroupRequest
		if err = req.Decode(h); err == nil {
			g := s.server.table.memberGroup(req.ClusterName, req.BrokerName)
			r.body, err = command.EncodeBody(command.MemberGroupResponse{Group: &g})
		}
	case command.ReqPutKVConfig, command.ReqGetKVConfig, command.ReqDeleteKVConfig, command.ReqGetKVListByNamespace:
		err = s.kv(h, r)
	default:
		err = s.admin(h, body, r)
	}
	if err != nil {
		r.fail(command.RespSystemError, err.Error())
	}
}

// route is request 105.
func (s *session) route(h *command.Header, r *reply) {
	s.server.queries.Add(1)
	name, ok := h.Ext("topic")
	if !ok {
		var req command.RouteRequest
		r.fail(command.RespSystemError, fmt.Sprint(req.Decode(h)))
		return
	}
	if zone := zoneOf(h); zone != "" {
		r.body = s.server.table.zoneRoute(name, zone)
	} else {
		r.body = s.server.table.route(name)
	}
	if r.body == nil {
		s.server.unknown.Add(1)
		r.fail(command.RespTopicNotExist, "No topic route info in name server for the topic: "+string(name)+noRouteHint)
	}
}

// zoneOf is the zone to which a client wants its route cut, empty: the whole route. Java
// clients with a zone of their own say so with each query.
func zoneOf(h *command.Header) string {
	if _, ok := h.Ext(command.ZoneName); !ok {
		return "" // nearly always, and nothing is allocated
	}
	var req command.RouteRequest
	if err := req.Decode(h); err != nil || !req.ZoneMode {
		return "" // as Java reads a switch that is neither true nor false
	}
	return strings.TrimSpace(req.ZoneName)
}

// order is what a route says about an ordered topic.
func (s *Server) order(topic string) string {
	if !s.cfg.Load().OrderMessageEnable {
		return ""
	}
	v, _ := s.kv.get(orderNamespace, topic)
	return v
}

// register is request 103.
func (s *session) register(h *command.Header, body []byte, r *reply) error {
	reg := registration{owner: s}
	if err := reg.Decode(h); err != nil {
		return err
	}
	if err := checkBroker(&reg.BrokerID); err != nil {
		return err
	}
	var err error
	if reg.body, err = s.server.decode(&reg.RegisterBrokerRequest, h.Version, body); err != nil {
		if n := s.server.refused.Due(s.server.clock.Now()); n > 0 {
			s.server.table.log.Warn("registration refused", "broker", reg.BrokerName, "address", reg.BrokerAddr, "error", err, "such_since_last_said", n)
		}
		if errors.Is(err, command.ErrBodyCRC) {
			return command.ErrBodyCRC // the remark of RocketMQ, nothing else
		}
		return err
	}
	resp, err := s.server.table.register(&reg)
	if err != nil {
		return err
	}
	s.isBroker()
	r.fields = resp.Append
	if m, ok := s.server.kv.list(orderNamespace); ok {
		r.body, err = command.EncodeBody(command.KVTable{Table: m})
	}
	return err
}

// decode waits while as many large registrations as may be are being decoded.
func (s *Server) decode(req *command.RegisterBrokerRequest, version int32, body []byte) (*command.RegisterBrokerBody, error) {
	if req.Compressed || len(body) >= largeBody {
		s.large <- struct{}{}
		defer func() { <-s.large }()
	}
	return command.DecodeRegisterBody(req, version, body)
}

// checkBroker refuses what would reach clients as a route that they cannot use.
// Go clients cut addresses out of the text of the route by hand.
func checkBroker(b *command.BrokerID) error {
	switch {
	case b.BrokerName == "" || b.ClusterName == "":
		return fmt.Errorf("registration of %q: brokerName %q and clusterName %q must not be empty", b.BrokerAddr, b.BrokerName, b.ClusterName)
	case b.BrokerID < 0:
		return fmt.Errorf("registration of broker %q: brokerId is %d, ids start at 0", b.BrokerName, b.BrokerID)
	}
	host, port, err := net.SplitHostPort(b.BrokerAddr)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsFunc(b.BrokerAddr, noAddress) {
		return fmt.Errorf("registration of broker %q: brokerAddr %q is no host:port", b.BrokerName, b.BrokerAddr)
	}
	return nil
}

// noAddress tells what is in no host name, number or port.
func noAddress(r rune) bool {
	return r <= ' ' || r == unicode.ReplacementChar || r == 0x7F || strings.ContainsRune(",;\"{}\\", r)
}

// touch notes a sign of life.
func (s *session) touch(b command.BrokerID) (command.DataVersion, bool) {
	v, known := s.server.table.touch(b, s)
	if known {
		s.isBroker()
	}
	return v, known
}

// dataVersion is request 322.
func (s *session) dataVersion(h *command.Header, body []byte, r *reply) error {
	var req command.QueryDataVersionRequest
	if err := req.Decode(h); err != nil {
		return err
	}
	var theirs command.DataVersion
	if err := command.DecodeBody(body, &theirs); err != nil {
		return err
	}
	ours, known := s.touch(req.BrokerID)
	resp := command.QueryDataVersionResponse{Changed: !known || ours != theirs}
	r.fields = resp.Append
	if !known {
		return nil
	}
	var err error
	r.body, err = command.EncodeBody(ours)
	return err
}

// kv is requests 100, 101, 102 and 219.
func (s *session) kv(h *command.Header, r *reply) error {
	kv := s.server.kv
	if h.Code == command.ReqGetKVListByNamespace {
		namespace, err := need(h, "namespace")
		if err != nil {
			return err
		}
		m, ok := kv.list(namespace)
		if !ok {
			r.fail(command.RespQueryNotFound, "No config item, Namespace: "+namespace)
			return nil
		}
		r.body, err = command.EncodeBody(command.KVTable{Table: m})
		return err
	}
	var req command.KVConfigRequest
	if err := req.Decode(h); err != nil {
		return err
	}
	if h.Code == command.ReqGetKVConfig {
		v, ok := kv.get(req.Namespace, req.Key)
		if !ok {
			r.fail(command.RespQueryNotFound, "No config item, Namespace: "+req.Namespace+" Key: "+req.Key)
			return nil
		}
		r.fields = func(w *command.Writer) { w.Ext("value", v) }
		return nil
	}
	// Other bytes would be others after the next start: the file is JSON.
	for field, text := range map[string]string{"namespace": req.Namespace, "key": req.Key, "value": req.Value} {
		if !utf8.ValidString(text) {
			return &command.FieldError{Code: h.Code, Field: field, Value: text[:min(len(text), 64)], Reason: "not UTF-8"}
		}
	}
	if err := kv.set(req.Namespace, req.Key, req.Value, h.Code == command.ReqDeleteKVConfig); err != nil {
		return err
	}
	if req.Namespace == orderNamespace {
		s.server.table.gen.Add(1) // routes may show it
	}
	return nil
}

// need returns a required ext field.
func need(h *command.Header, key string) (string, error) {
	v, ok := h.Ext(key)
	if !ok {
		return "", &command.FieldError{Code: h.Code, Field: key, Reason: "required and missing"}
	}
	return string(v), nil
}

// admin is what only tools ask.
func (s *session) admin(h *command.Header, body []byte, r *reply) error {
	t := s.server.table
	all := func(*queue) bool { return true }
	switch h.Code {
	case command.ReqGetAllTopicListFromNameserver:
		return s.topics(s.server.cfg.Load().EnableAllTopicList, all, r)
	case command.ReqGetTopicsByCluster:
		cluster, err := need(h, "cluster")
		if err != nil {
			return err
		}
		return s.topics(s.server.cfg.Load().EnableTopicList, func(q *queue) bool { return q.group.view.Load().Cluster == cluster }, r)
	case command.ReqGetSystemTopicListFromNS:
		var err error
		r.body, err = command.EncodeBody(t.systemTopics())
		return err
	case command.ReqGetUnitTopicList:
		return s.unitTopics(flagUnit, 0, r)
	case command.ReqGetHasUnitSubTopicList:
		return s.unitTopics(flagUnitSub, 0, r)
	case command.ReqGetHasUnitSubUnunitTopicList:
		return s.unitTopics(flagUnitSub, flagUnit, r)
	case command.ReqWipeWritePermOfBroker:
		return s.setPerm(h, r, "wipeTopicCount", func(p int32) int32 { return p &^ command.PermWrite })
	case command.ReqAddWritePermOfBroker:
		return s.setPerm(h, r, "addTopicCount", func(int32) int32 { return command.PermRead | command.PermWrite })
	case command.ReqDeleteTopicInNamesrv:
		topic, err := need(h, "topic")
		if err == nil {
			t.deleteTopic(topic, h.ExtString("clusterName"))
		}
		return err
	case command.ReqRegisterTopicInNamesrv:
		topic, err := need(h, "topic")
		if err != nil {
			return err
		}
		var route command.TopicRouteData
		if err := command.DecodeBody(body, &route); err != nil {
			return err
		}
		t.putQueues(topic, route.QueueDatas)
		return nil
	case command.ReqGetNamesrvConfig, command.ReqUpdateNamesrvConfig:
		return s.config(h, body, r)
	}
	r.fail(command.RespRequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", h.Code))
	return nil
}

// config is requests 318 and 319.
func (s *session) config(h *command.Header, body []byte, r *reply) error {
	switch {
	case s.server.props == nil || s.server.alter == nil:
		r.fail(command.RespRequestCodeNotSupported, "the configuration of this name server is fixed by the program that embeds it")
	case h.Code == command.ReqGetNamesrvConfig:
		r.body = s.server.props()
	default:
		changed, err := s.server.alter(body)
		if err != nil {
			return err
		}
		r.remark = changed
	}
	return nil
}

func (s *session) topics(enabled bool, want func(*queue) bool, r *reply) error {
	if !enabled {
		return errors.New("disable")
	}
	var err error
	r.body, err = command.EncodeBody(command.TopicList{Topics: s.server.table.topicNames(want)})
	return err
}

func (s *session) unitTopics(with, without int32, r *reply) error {
	return s.topics(s.server.cfg.Load().EnableTopicList, func(q *queue) bool {
		return q.data.TopicSysFlag&with != 0 && q.data.TopicSysFlag&without == 0
	}, r)
}

func (s *session) setPerm(h *command.Header, r *reply, count string, change func(int32) int32) error {
	broker, err := need(h, "brokerName")
	if err != nil {
		return err
	}
	n := s.server.table.setPerm(broker, change)
	r.fields = func(w *command.Writer) { w.ExtInt(count, int64(n)) }
	return nil
}
