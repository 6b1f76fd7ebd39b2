package command

// MessageRequestMode is how a group takes its messages.
type MessageRequestMode string

// The modes.
const (
	ModePull MessageRequestMode = "PULL"
	ModePop  MessageRequestMode = "POP"
)

// UnmarshalJSON reads a name in any case or an ordinal; unknown becomes "".
func (m *MessageRequestMode) UnmarshalJSON(b []byte) error {
	*m = MessageRequestMode(enum(b, []string{string(ModePull), string(ModePop)}))
	return nil
}

// QueryAssignmentBody is the body of QUERY_ASSIGNMENT (400).
type QueryAssignmentBody struct {
	ClientID      string       `json:"clientId"`
	ConsumerGroup string       `json:"consumerGroup"`
	MessageModel  MessageModel `json:"messageModel"`
	StrategyName  string       `json:"strategyName"`
	Topic         string       `json:"topic"`
	// Plan, which only Hardpoint knows, asks what would be instead of what is.
	Plan *PlanRequest `json:"plan,omitempty"`
}

// QueryAssignmentResponse answers QUERY_ASSIGNMENT.
type QueryAssignmentResponse struct {
	// Assignments nil: nothing can be said, and the client keeps what it has.
	// Empty: the client has no queue.
	Assignments []MessageQueueAssignment `json:"messageQueueAssignments,omitzero"`
	// Group is for brokers that forward the request, Plan answers one.
	Group *GroupAssignment `json:"hardpointGroup,omitempty"`
	Plan  *AssignmentPlan  `json:"hardpointPlan,omitempty"`
}

// MessageQueueAssignment is one queue of a client.
type MessageQueueAssignment struct {
	MessageQueue MessageQueue       `json:"messageQueue"`
	Mode         MessageRequestMode `json:"mode"`
}

// SetMessageRequestModeBody is the body of SET_MESSAGE_REQUEST_MODE (401).
type SetMessageRequestModeBody struct {
	ConsumerGroup    string             `json:"consumerGroup"`
	Mode             MessageRequestMode `json:"mode"`
	PopShareQueueNum int32              `json:"popShareQueueNum"`
	Topic            string             `json:"topic"`
	// Allocator and Weights are Hardpoint's: see the group attributes allocator
	// and allocator.weights. Empty: what the group says.
	Allocator string `json:"allocator,omitempty"`
	Weights   string `json:"weights,omitempty"`
}

// MessageRequestModes answers GET_ALL_MESSAGE_REQUEST_MODE (402): topic, group.
type MessageRequestModes struct {
	Modes map[string]map[string]SetMessageRequestModeBody `json:"messageRequestModeMap"`
}

// MarshalJSON writes an empty table as {}.
func (m MessageRequestModes) MarshalJSON() ([]byte, error) {
	type plain MessageRequestModes
	if m.Modes == nil {
		m.Modes = map[string]map[string]SetMessageRequestModeBody{}
	}
	return EncodeBody(plain(m))
}

// GroupAssignment is who has which queues of a topic. It is Hardpoint's: brokers
// tell it each other, and keep it in the catalog.
type GroupAssignment struct {
	// Generation grows with each change within a broker.
	Generation uint64 `json:"generation"`
	Allocator  string `json:"allocator"`
	Version    string `json:"version"`
	// Owners is client id → broker name → queue ids, ascending.
	Owners map[string]map[string][]int32 `json:"owners"`
}

// PlanRequest asks what an allocator would do. Nothing changes by it.
type PlanRequest struct {
	// Allocator is the plugin's name; empty: the one that the group has.
	Allocator string `json:"allocator,omitempty"`
	// Weights are as those of SetMessageRequestModeBody; empty: those that the group
	// has.
	Weights string `json:"weights,omitempty"`
	// Unset asks what would be without what SET_MESSAGE_REQUEST_MODE said.
	Unset bool `json:"unset,omitempty"`
	// Members stand for those that are there; nil: these.
	Members []PlanMember `json:"members,omitempty"`
}

// PlanMember is a member of the group in a plan.
type PlanMember struct {
	ClientID string `json:"clientId"`
	Zone     string `json:"zone,omitempty"`
	// Weight 0: what the group's setting says, else 1.
	Weight uint32 `json:"weight,omitempty"`
	// Before and After are numbers of queues; of answers only.
	Before int `json:"before"`
	After  int `json:"after"`
}

// PlanQueue is a queue in a plan. From or To empty: nobody.
type PlanQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Zone       string `json:"zone,omitempty"`
	From       string `json:"from"`
	To         string `json:"to"`
	Why        string `json:"why"`
}

// PlanBroker is a broker of the topic.
type PlanBroker struct {
	BrokerName string `json:"brokerName"`
	Address    string `json:"address"`
}

// AssignmentPlan answers a PlanRequest.
type AssignmentPlan struct {
	// Broker computed it; Brokers are all that the topic has queues on, by name.
	Broker    string       `json:"broker"`
	Brokers   []PlanBroker `json:"brokers"`
	Group     string       `json:"group"`
	Topic     string       `json:"topic"`
	Allocator string       `json:"allocator"`
	Version   string       `json:"version"`
	// Generation and Present are of the assignment in force; 0 and "": none.
	Generation uint64       `json:"generation"`
	Present    string       `json:"present"`
	Members    []PlanMember `json:"members"`
	Queues     []PlanQueue  `json:"queues"`
	// Moved counts queues that go from a member to another one, Unowned those
	// that nobody would have.
	Moved   int `json:"moved"`
	Unowned int `json:"unowned"`
}
