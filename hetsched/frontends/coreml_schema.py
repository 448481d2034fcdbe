"""Numbers of the fields of Core ML's messages that are read here, by message and name.

From Apple's public format specification (https://apple.github.io/coremltools/mlmodel/index.html: Model.proto, FeatureTypes.proto,
MIL.proto, NeuralNetwork.proto). The tables are text: ``message: field number [type of the message in it], …``.
"""

from __future__ import annotations

Fields = dict[str, int | tuple[int, str]]

_FIELDS = """
Model: specificationVersion 1, description 2 ModelDescription, pipelineClassifier 200, pipelineRegressor 201, pipeline 202,
  neuralNetworkRegressor 303 NeuralNetwork, neuralNetworkClassifier 403 NeuralNetwork, neuralNetwork 500 NeuralNetwork, mlProgram
  502 Program
ModelDescription: functions 20, defaultFunctionName 21, input 1 FeatureDescription, output 10 FeatureDescription, state 13
  FeatureDescription
FeatureDescription: name 1, type 3 FeatureType
FeatureType: imageType 4 ImageFeatureType, multiArrayType 5 ArrayFeatureType, stateType 8 StateFeatureType
SizeRange: lowerBound 1, upperBound 2
StateFeatureType: arrayType 1 ArrayFeatureType
ImageFeatureType: width 1, height 2, imageSizeRange 31 ImageSizeRange, colorSpace 3
ImageSizeRange: widthRange 1 SizeRange, heightRange 2 SizeRange
ArrayFeatureType: shape 1, dataType 2, enumeratedShapes 21 EnumeratedShapes, shapeRange 31 ShapeRange
EnumeratedShapes: shapes 1 Shape
Shape: shape 1
ShapeRange: sizeRanges 1 SizeRange
Program: version 1, functions 2 Function
Function: inputs 1 NamedValueType, opset 2, block_specializations 3 Block
Block: inputs 1 NamedValueType, outputs 2, operations 3 Operation
Argument: arguments 1 Binding
Binding: name 1, value 2 Value
Operation: type 1, inputs 2 Argument, outputs 3 NamedValueType, blocks 4, attributes 5 Value
NamedValueType: name 1, type 2 ValueType
StateType: wrappedType 1 ValueType
Dimension: constant 1 ConstantDimension, unknown 2
ConstantDimension: size 1
BlobFileValue: fileName 1, offset 2
ValueType: tensorType 1 TensorType, stateType 5 StateType
TensorType: dataType 1, rank 2, dimensions 3 Dimension
Value: type 2 ValueType, immediateValue 3 ImmediateValue, blobFileValue 5 BlobFileValue
ImmediateValue: tensor 1 TensorValue
TensorValue: floats 1 RepeatedFloats, ints 2 RepeatedInts, bools 3 RepeatedBools, strings 4 RepeatedStrings, longInts 5
  RepeatedLongInts, doubles 6 RepeatedDoubles, bytes 7 RepeatedBytes
RepeatedFloats: values 1
RepeatedInts: values 1
RepeatedBools: values 1
RepeatedStrings: values 1
RepeatedLongInts: values 1
RepeatedDoubles: values 1
RepeatedBytes: values 1
NeuralNetwork: layers 1 NeuralNetworkLayer, preprocessing 2 NeuralNetworkPreprocessing, arrayInputShapeMapping 5,
  imageInputShapeMapping 6
NeuralNetworkPreprocessing: featureName 1, scaler 10 NeuralNetworkImageScaler, meanImage 11
NeuralNetworkImageScaler: channelScale 10, blueBias 20, greenBias 21, redBias 22, grayBias 30
NeuralNetworkLayer: name 1, input 2, output 3, inputTensor 4 Tensor, outputTensor 5 Tensor, convolution 100 ConvolutionLayerParams,
  pooling 120 PoolingLayerParams, activation 130 ActivationParams, innerProduct 140 InnerProductLayerParams, embedding 150
  EmbeddingLayerParams, batchnorm 160 BatchnormLayerParams, mvn 165 MeanVarianceNormalizeLayerParams, l2normalize 170
  L2NormalizeLayerParams, softmax 175 SoftmaxLayerParams, lrn 180 LRNLayerParams, crop 190 CropLayerParams, padding 200
  PaddingLayerParams, upsample 210 UpsampleLayerParams, resizeBilinear 211 ResizeBilinearLayerParams, unary 220
  UnaryFunctionLayerParams, add 230 AddLayerParams, multiply 231 MultiplyLayerParams, average 240 AverageLayerParams, scale 245
  ScaleLayerParams, bias 250 BiasLayerParams, max 260 MaxLayerParams, min 261 MinLayerParams, dot 270 DotProductLayerParams, reduce
  280 ReduceLayerParams, loadConstant 290 LoadConstantLayerParams, reshape 300 ReshapeLayerParams, flatten 301 FlattenLayerParams,
  permute 310 PermuteLayerParams, concat 320 ConcatLayerParams, split 330 SplitLayerParams, reorganizeData 345
  ReorganizeDataLayerParams, slice 350 SliceLayerParams, copy 600 CopyLayerParams, clip 660 ClipLayerParams, ceil 665
  CeilLayerParams, floor 670 FloorLayerParams, sign 680 SignLayerParams, round 685 RoundLayerParams, sin 710 SinLayerParams, cos 715
  CosLayerParams, tanh 760 TanhLayerParams, erf 790 ErfLayerParams, gelu 795 GeluLayerParams, minBroadcastable 870
  MinBroadcastableLayerParams, maxBroadcastable 875 MaxBroadcastableLayerParams, addBroadcastable 880 AddBroadcastableLayerParams,
  powBroadcastable 885 PowBroadcastableLayerParams, divideBroadcastable 890 DivideBroadcastableLayerParams, multiplyBroadcastable
  900 MultiplyBroadcastableLayerParams, subtractBroadcastable 905 SubtractBroadcastableLayerParams, tile 920 TileLayerParams, stack
  925 StackLayerParams, gather 930 GatherLayerParams, softmaxND 950 SoftmaxNDLayerParams, splitND 975 SplitNDLayerParams, concatND
  980 ConcatNDLayerParams, transpose 985 TransposeLayerParams, sliceStatic 995 SliceStaticLayerParams, topK 1015 TopKLayerParams,
  argMin 1020 ArgMinLayerParams, argMax 1025 ArgMaxLayerParams, embeddingND 1040 EmbeddingNDLayerParams, batchedMatmul 1045
  BatchedMatMulLayerParams, loadConstantND 1070 LoadConstantNDLayerParams, squeeze 1120 SqueezeLayerParams, expandDims 1125
  ExpandDimsLayerParams, flattenTo2D 1130 FlattenTo2DLayerParams, reshapeStatic 1140 ReshapeStaticLayerParams, rankPreservingReshape
  1150 RankPreservingReshapeLayerParams, constantPad 1155 ConstantPaddingLayerParams, reduceL1 1250 ReduceL1LayerParams, reduceL2
  1255 ReduceL2LayerParams, reduceMax 1260 ReduceMaxLayerParams, reduceMin 1265 ReduceMinLayerParams, reduceSum 1270
  ReduceSumLayerParams, reduceProd 1275 ReduceProdLayerParams, reduceMean 1280 ReduceMeanLayerParams, layerNormalization 1350
  LayerNormalizationLayerParams
Tensor: rank 1, dimValue 2
ConvolutionLayerParams: outputChannels 1, kernelChannels 2, nGroups 10, kernelSize 20, stride 30, dilationFactor 40, valid 50
  ValidPadding, same 51 SamePadding, isDeconvolution 60, hasBias 70, weights 90 WeightParams, bias 91 WeightParams, outputShape 100
PoolingLayerParams: type 1, kernelSize 10, stride 20, valid 30 ValidPadding, same 31 SamePadding, includeLastPixel 32
  ValidCompletePadding, avgPoolExcludePadding 50, globalPooling 60
ActivationParams: linear 5 ActivationLinear, ReLU 10 ActivationReLU, leakyReLU 15 ActivationLeakyReLU, thresholdedReLU 20
  ActivationThresholdedReLU, PReLU 25 ActivationPReLU, tanh 30 ActivationTanh, scaledTanh 31 ActivationScaledTanh, sigmoid 40
  ActivationSigmoid, sigmoidHard 41 ActivationSigmoidHard, ELU 50 ActivationELU, softsign 60 ActivationSoftsign, softplus 70
  ActivationSoftplus, parametricSoftplus 71 ActivationParametricSoftplus
InnerProductLayerParams: inputChannels 1, outputChannels 2, hasBias 10, weights 20 WeightParams, bias 21 WeightParams,
  int8DynamicQuantize 22
EmbeddingLayerParams: inputDim 1, outputChannels 2, hasBias 10, weights 20 WeightParams, bias 21 WeightParams
BatchnormLayerParams: channels 1, computeMeanVar 5, instanceNormalization 6, epsilon 10, gamma 15 WeightParams, beta 16
  WeightParams, mean 17 WeightParams, variance 18 WeightParams
MeanVarianceNormalizeLayerParams: acrossChannels 1, normalizeVariance 2, epsilon 3
L2NormalizeLayerParams: epsilon 1
SoftmaxLayerParams:
LRNLayerParams: alpha 1, beta 2, localSize 3, k 4
CropLayerParams: cropAmounts 1 BorderAmounts, offset 5
PaddingLayerParams: constant 1 PaddingConstant, reflection 2 PaddingReflection, replication 3 PaddingReplication, paddingAmounts 10
  BorderAmounts
UpsampleLayerParams: scalingFactor 1, fractionalScalingFactor 7, mode 5, linearUpsampleMode 6
ResizeBilinearLayerParams: targetSize 1, mode 2 SamplingMode
UnaryFunctionLayerParams: type 1, alpha 2, epsilon 3, shift 4, scale 5
AddLayerParams: alpha 1
MultiplyLayerParams: alpha 1
AverageLayerParams:
ScaleLayerParams: shapeScale 1, scale 2 WeightParams, hasBias 3, shapeBias 4, bias 5 WeightParams
BiasLayerParams: shape 1, bias 2 WeightParams
MaxLayerParams:
MinLayerParams:
DotProductLayerParams: cosineSimilarity 1
ReduceLayerParams: mode 1, epsilon 2, axis 3
LoadConstantLayerParams: shape 1, data 2 WeightParams
ReshapeLayerParams: targetShape 1, mode 2
FlattenLayerParams: mode 1
PermuteLayerParams: axis 1
ConcatLayerParams: sequenceConcat 100
SplitLayerParams: nOutputs 1
ReorganizeDataLayerParams: mode 1, blockSize 2
SliceLayerParams: startIndex 1, endIndex 2, stride 3, axis 4
CopyLayerParams:
ClipLayerParams: minVal 1, maxVal 2
CeilLayerParams:
FloorLayerParams:
SignLayerParams:
RoundLayerParams:
SinLayerParams:
CosLayerParams:
TanhLayerParams:
ErfLayerParams:
GeluLayerParams: mode 1
MinBroadcastableLayerParams:
MaxBroadcastableLayerParams:
AddBroadcastableLayerParams:
PowBroadcastableLayerParams:
DivideBroadcastableLayerParams:
MultiplyBroadcastableLayerParams:
SubtractBroadcastableLayerParams:
TileLayerParams: reps 1
StackLayerParams: axis 1
GatherLayerParams: axis 1
SoftmaxNDLayerParams: axis 1
SplitNDLayerParams: axis 1, numSplits 2, splitSizes 3
ConcatNDLayerParams: axis 1, interleave 2
TransposeLayerParams: axes 1
SliceStaticLayerParams: beginIds 1, beginMasks 2, endIds 3, endMasks 4, strides 5, squeezeMasks 6
TopKLayerParams: axis 1, K 2, useBottomK 3
ArgMinLayerParams: axis 1, removeDim 2
ArgMaxLayerParams: axis 1, removeDim 2
EmbeddingNDLayerParams: vocabSize 1, embeddingSize 2, hasBias 3, weights 20 WeightParams, bias 21 WeightParams
BatchedMatMulLayerParams: transposeA 1, transposeB 2, weightMatrixFirstDimension 5, weightMatrixSecondDimension 6, hasBias 7,
  weights 8 WeightParams, bias 9 WeightParams, int8DynamicQuantize 10
LoadConstantNDLayerParams: shape 1, data 2 WeightParams
SqueezeLayerParams: axes 1, squeezeAll 2
ExpandDimsLayerParams: axes 1
FlattenTo2DLayerParams: axis 1
ReshapeStaticLayerParams: targetShape 1
RankPreservingReshapeLayerParams: targetShape 1
ConstantPaddingLayerParams: value 1, padAmounts 2, padToGivenOutputSizeMode 3
ReduceL1LayerParams: axes 1, keepDims 2, reduceAll 3
ReduceL2LayerParams: axes 1, keepDims 2, reduceAll 3
ReduceMaxLayerParams: axes 1, keepDims 2, reduceAll 3
ReduceMinLayerParams: axes 1, keepDims 2, reduceAll 3
ReduceSumLayerParams: axes 1, keepDims 2, reduceAll 3
ReduceProdLayerParams: axes 1, keepDims 2, reduceAll 3
ReduceMeanLayerParams: axes 1, keepDims 2, reduceAll 3
LayerNormalizationLayerParams: normalizedShape 1, eps 2, gamma 3 WeightParams, beta 4 WeightParams
ValidPadding: paddingAmounts 1 BorderAmounts
SamePadding: asymmetryMode 1
WeightParams: floatValue 1, float16Value 2, rawValue 30, int8RawValue 31, quantization 40 QuantizationParams, isUpdatable 50
ValidCompletePadding: paddingAmounts 10
ActivationLinear: alpha 1, beta 2
ActivationReLU:
ActivationLeakyReLU: alpha 1
ActivationThresholdedReLU: alpha 1
ActivationPReLU: alpha 1 WeightParams
ActivationTanh:
ActivationScaledTanh: alpha 1, beta 2
ActivationSigmoid:
ActivationSigmoidHard: alpha 1, beta 2
ActivationELU: alpha 1
ActivationSoftsign:
ActivationSoftplus:
ActivationParametricSoftplus: alpha 1 WeightParams, beta 2 WeightParams
BorderAmounts: borderAmounts 10 EdgeSizes
PaddingConstant: value 1
PaddingReflection:
PaddingReplication:
SamplingMode: samplingMethod 1
QuantizationParams: numberOfBits 1, linearQuantization 101 LinearQuantizationParams, lookupTableQuantization 102
  LookUpTableQuantizationParams
EdgeSizes: startEdgeSize 1, endEdgeSize 2
LinearQuantizationParams: scale 1, bias 2
LookUpTableQuantizationParams: floatValue 1
Entry: key 1, value 2
"""

_MODELS = """
pipelineClassifier 200, pipelineRegressor 201, pipeline 202, glmRegressor 300, supportVectorRegressor 301, treeEnsembleRegressor
302, neuralNetworkRegressor 303, bayesianProbitRegressor 304, glmClassifier 400, supportVectorClassifier 401, treeEnsembleClassifier
402, neuralNetworkClassifier 403, kNearestNeighborsClassifier 404, neuralNetwork 500, itemSimilarityRecommender 501, mlProgram 502,
customModel 555, linkedModel 556, classConfidenceThresholding 560, oneHotEncoder 600, imputer 601, featureVectorizer 602,
dictVectorizer 603, scaler 604, categoricalMapping 606, normalizer 607, arrayFeatureExtractor 609, nonMaximumSuppression 610,
identity 900, textClassifier 2000, wordTagger 2001, visionFeaturePrint 2002, soundAnalysisPreprocessing 2003, gazetteer 2004,
wordEmbedding 2005, audioFeaturePrint 2006, serializedModel 3000
"""

_LAYERS = """
convolution 100, pooling 120, activation 130, innerProduct 140, embedding 150, batchnorm 160, mvn 165, l2normalize 170, softmax 175,
lrn 180, crop 190, padding 200, upsample 210, resizeBilinear 211, cropResize 212, unary 220, add 230, multiply 231, average 240,
scale 245, bias 250, max 260, min 261, dot 270, reduce 280, loadConstant 290, reshape 300, flatten 301, permute 310, concat 320,
split 330, sequenceRepeat 340, reorganizeData 345, slice 350, simpleRecurrent 400, gru 410, uniDirectionalLSTM 420,
biDirectionalLSTM 430, custom 500, copy 600, branch 605, loop 615, loopBreak 620, loopContinue 625, rangeStatic 635, rangeDynamic
640, clip 660, ceil 665, floor 670, sign 680, round 685, exp2 700, sin 710, cos 715, tan 720, asin 730, acos 735, atan 740, sinh
750, cosh 755, tanh 760, asinh 770, acosh 775, atanh 780, erf 790, gelu 795, equal 815, notEqual 820, lessThan 825, lessEqual 827,
greaterThan 830, greaterEqual 832, logicalOr 840, logicalXor 845, logicalNot 850, logicalAnd 855, modBroadcastable 865,
minBroadcastable 870, maxBroadcastable 875, addBroadcastable 880, powBroadcastable 885, divideBroadcastable 890,
floorDivBroadcastable 895, multiplyBroadcastable 900, subtractBroadcastable 905, tile 920, stack 925, gather 930, scatter 935,
gatherND 940, scatterND 945, softmaxND 950, gatherAlongAxis 952, scatterAlongAxis 954, reverse 960, reverseSeq 965, splitND 975,
concatND 980, transpose 985, sliceStatic 995, sliceDynamic 1000, slidingWindows 1005, topK 1015, argMin 1020, argMax 1025,
embeddingND 1040, batchedMatmul 1045, getShape 1065, loadConstantND 1070, fillLike 1080, fillStatic 1085, fillDynamic 1090,
broadcastToLike 1100, broadcastToStatic 1105, broadcastToDynamic 1110, squeeze 1120, expandDims 1125, flattenTo2D 1130, reshapeLike
1135, reshapeStatic 1140, reshapeDynamic 1145, rankPreservingReshape 1150, constantPad 1155, randomNormalLike 1170,
randomNormalStatic 1175, randomNormalDynamic 1180, randomUniformLike 1190, randomUniformStatic 1195, randomUniformDynamic 1200,
randomBernoulliLike 1210, randomBernoulliStatic 1215, randomBernoulliDynamic 1220, categoricalDistribution 1230, reduceL1 1250,
reduceL2 1255, reduceMax 1260, reduceMin 1265, reduceSum 1270, reduceProd 1275, reduceMean 1280, reduceLogSum 1285, reduceSumSquare
1290, reduceLogSumExp 1295, whereNonZero 1313, matrixBandPart 1315, lowerTriangular 1320, upperTriangular 1325, whereBroadcastable
1330, layerNormalization 1350, NonMaximumSuppression 1400, oneHot 1450, cumSum 1455, clampedReLU 1460, argSort 1461, pooling3d 1465,
globalPooling3d 1466, sliceBySize 1470, convolution3d 1471
"""


def _fields(text: str) -> dict[str, Fields]:
    out: dict[str, Fields] = {}
    for row in text.strip().replace("\n  ", " ").splitlines():
        message, _, rest = row.partition(":")
        out[message] = {}
        for part in filter(None, rest.strip().split(", ")):
            name, number, *kind = part.split()
            out[message][name] = (int(number), kind[0]) if kind else int(number)
    return out


def _names(text: str) -> dict[int, str]:
    return {int(number): name for name, number in (part.split() for part in text.strip().replace("\n", " ").split(", "))}


#: Field numbers by message and field; with the type of the message where the field is one.
SCHEMA = _fields(_FIELDS)
#: Names of all kinds of models and of all layers, by number, for messages about those that are not handled.
MODELS, LAYERS = _names(_MODELS), _names(_LAYERS)
